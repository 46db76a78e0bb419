"""pycollectives beside the other libraries that a Python user could install, interleaved in one run: see README.md."""
