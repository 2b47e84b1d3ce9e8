"""Native CPU kernels for the target's decoder layers, built on first use with the system's C++ compiler."""
