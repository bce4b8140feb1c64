"""Reads a container, from Documentation/CONTAINER-FORMAT.md alone; a module for each part of the page.

A container is small here: a journal is read at once and the whole catalog is kept in memory. Contents are streamed.
"""
