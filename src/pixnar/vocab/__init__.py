"""vocab: docid texts come in; a vocabulary of phrases that encodes and decodes any text comes out."""
