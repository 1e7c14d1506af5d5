"""Rules for matrices that are filled from vectors at constant positions, such as packed triangles."""
