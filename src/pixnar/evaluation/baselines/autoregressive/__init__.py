"""autoregressive: token ids of documents and a decoder come in; documents found by generating text or ids go out."""
