"""What a compiler would bring: `build` makes compiled copies of the package, `hot_paths.pyx` is two functions in C."""
