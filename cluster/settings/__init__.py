"""A node's settings: the model, its layers, how they are written, and the plug-ins that they name."""
