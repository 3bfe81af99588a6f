"""Training: pairs and batches go in, a trained model and its checkpoints come out."""
