"""What is made once and kept on disk: built kernels, converted checkpoints. Nothing kept is believed unchecked."""
