"""The claims of the lectures (C1-C25), each as an experiment that anybody can repeat."""
