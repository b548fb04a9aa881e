"""Packages of other engines' names over topoctl. They come in force where this directory stands on
Python's path: see docs/python.md.
"""
