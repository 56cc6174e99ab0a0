"""One file at a time: the catalog, segments, marks, the journal of edits."""
