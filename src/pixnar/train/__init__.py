"""train: pairs of inputs and docids come in; a trained model and its checkpoints go out (torch)."""
