"""Reads a container of format 3, from the pages in Documentation alone.

`files` and `locks` are the rim; `superblock`, `journal`, `table` and `catalog` are parts of
CONTAINER-FORMAT.md, `deliveries` and `outbox` of CONTAINER-MESSAGES.md; `state` is the reader's
algorithm, and `verify` reads everything.

A container is small here: journals and tables are read at once, and the whole catalog is kept in
memory. Contents are streamed.
"""
