"""Another recalld server as a source of this one."""
