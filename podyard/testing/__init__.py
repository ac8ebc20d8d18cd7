"""For tests of people who build on Podyard: the pytest plugin and `podyard.local()`."""
