"""The gRPC client beneath `RemoteMemory` and beneath a server's remote sources."""
