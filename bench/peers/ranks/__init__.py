"""What runs in the ranks of every library that is compared; nothing here needs more than NumPy, ml_dtypes and pycollectives."""
