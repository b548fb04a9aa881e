// Package doctor breaks a machine's RDMA on purpose and reads what topoctl doctor
// says of it: wrong GID index, port down, MTU that differs, too little memory that may
// be locked, registration refused. It runs inside the virtual machine lab only.
package doctor
