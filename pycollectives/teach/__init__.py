"""For classes and for the curious: what an algorithm does, step by step."""

from .trace import Step, Trace, check_arguments, example, example_length, trace

__all__ = ["Step", "Trace", "check_arguments", "example", "example_length", "trace"]
