import signal

# A shell starts what runs in the background with SIGINT ignored, and what the tests start would
# inherit that: those of Ctrl-C would wait for ever.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
  signal.signal(signal.SIGINT, signal.default_int_handler)
