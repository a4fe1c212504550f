"""The pure core: envelope, chain, keys.

The same files run in the driver's virtual environment and inside PL/Python under the system
Python. They need PyNaCl alone, ``schema`` needs jsonschema, and they import nothing else of ours.
"""
