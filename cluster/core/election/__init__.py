"""The election: 18 states, one door between them, and a phase object for each part of the diagram."""
