\echo Use "CREATE EXTENSION oml CASCADE" to load this file. \quit
