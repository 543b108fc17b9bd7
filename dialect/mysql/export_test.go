package mysql

// OpenFor is for how many seconds a transaction has been open.
const OpenFor = openFor
