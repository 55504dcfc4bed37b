"""Compiler facts beside every time: what each kernel became in machine code, on both sides.

Facts come from what was built (the extension's own cubins, Triton's own cubin), never from a
second compile with other flags, and each says where it came from. Nothing here times anything.
"""
