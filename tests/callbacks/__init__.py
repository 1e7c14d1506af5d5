"""Tests of the direct callbacks."""
