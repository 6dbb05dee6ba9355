"""Convolutions of few output channels, every input by all taps at once, added up where they belong: `lower` is the way
in."""
