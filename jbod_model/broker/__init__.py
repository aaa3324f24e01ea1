"""The broker's part of directory assignment.

Functions take events and return actions; none reads a clock or a network.
"""
