"""Verification rules: each takes a Round and returns the emitted tokens, accepted drafts first."""
