"""The measurements, one module each: a dataclass of parameters in, a report (a dictionary for JSON) out."""
