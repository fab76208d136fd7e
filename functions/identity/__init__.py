"""Who is calling: the genuine app, and on whose behalf.

So far only the local stand-in for App Check exists. Outside the Emulator Suite every function
refuses to serve.
"""
