"""Builds, packs and checks a release (scripts/release)."""
