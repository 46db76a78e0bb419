"""Collective communication: algorithms as schedules, executed, verified and drawn."""
