"""Configuration, room by room: a user's file, checkpoints and records in; one finalized ``SpeculativeConfig`` or findings out.

Imports go one way: findings < read < language < records < schema < checkpoint < merge < final < resolve < show < export, migrate.
Nothing here imports torch.
"""
