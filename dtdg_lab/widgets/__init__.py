"""Parts of pages: live charts, controls, background work, and the base classes of pages."""
