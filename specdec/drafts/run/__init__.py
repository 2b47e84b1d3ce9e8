"""Runs draft networks over the requests of an engine.

In: what each forward of the target settled, and how many drafts are wanted. Out: drafts, and the laws they were drawn from.
"""
