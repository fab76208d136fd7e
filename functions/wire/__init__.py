"""Events as values, their SSE frames, and the text they fold to. Pure: no clock, no I/O."""
