"""What pages are made of: live charts, controls, background work, and the base classes of pages."""
