"""Contract suites and checkers for the tests, for people who write algorithms of their own, and for the docs."""
