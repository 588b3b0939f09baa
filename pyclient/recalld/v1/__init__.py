"""The wire contract in Python: generated from `proto/` by `make gen`."""
