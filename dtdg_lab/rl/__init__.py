"""Reinforcement learning: agents that choose one of a few actions, and Double DQN."""
