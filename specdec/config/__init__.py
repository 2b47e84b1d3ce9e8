"""Configuration: records, checkpoints, resolution. Nothing here imports torch."""
