"""The recalld server."""
