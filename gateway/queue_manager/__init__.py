"""The embedded queue manager."""
