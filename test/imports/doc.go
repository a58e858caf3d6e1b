// Package imports holds the directions in which the program's packages import
// each other and what each may use, by a test over the real packages.
package imports
