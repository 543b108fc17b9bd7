package postgres

// ShouldPing decides whether a connection is pinged before its next statement.
var ShouldPing = shouldPing

// WouldBlock looks at the socket.
var WouldBlock = wouldBlock
