"""An HTTP server and a page for trained models; `server.serve` starts it."""
