"""Pictures of a TPU for a lesson: chips, devices as sold, number formats, the first TPU. The
console and notebooks show the same ones.
"""
