"""Counter-based noise: Philox4x32-10 with key = request seed and counter = (token // 4 or 0, position, slot, role)."""
