"""Embeddings with ONNX Runtime and a Hugging Face tokenizer; start at `embedder.load_embedder`."""
