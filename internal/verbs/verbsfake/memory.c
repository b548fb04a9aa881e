//go:build cgo && linux && (amd64 || arm64)

/* Protection domains and memory regions. */
#define _GNU_SOURCE
#include <errno.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake.h"

static struct tv_pd *alloc_pd(struct tv_context *tc)
{
	struct tv_device *d = ((struct ctx *)tc)->dev;
	struct pd *p = NULL;
	int err = enter(d, V_ALLOC_PD);
	if (!err && d->live.pds >= d->attr.max_pd)
		err = ENOMEM;
	if (!err) {
		p = calloc(1, sizeof *p);
		p->p.context = d->lie == LIE_PD ? NULL : tc;
		p->dev = d;
		d->live.pds++;
	}
	leave(d, err);
	return p ? &p->p : NULL;
}

static int dealloc_pd(struct tv_pd *tp)
{
	struct pd *p = (struct pd *)tp;
	struct tv_device *d = p->dev;
	int err = enter(d, V_DEALLOC_PD);
	if (!err && p->users)
		err = EBUSY;
	if (!err) {
		d->live.pds--;
		free(p);
	}
	return leave(d, err);
}

/* Keys are a place in the table and a generation, so that old ones do not work again. */
static int place(struct fabric *f)
{
	for (int i = 1; i < f->nmrs; i++)
		if (!f->mrs[i])
			return i;
	int old = f->nmrs, n = old ? 2 * old : 64;
	f->mrs = realloc(f->mrs, (size_t)n * sizeof *f->mrs);
	f->gens = realloc(f->gens, (size_t)n);
	for (int i = old; i < n; i++) {
		f->mrs[i] = NULL;
		f->gens[i] = 0;
	}
	f->nmrs = n;
	return old ? old : 1;
}

struct mr *mr_find(struct fabric *f, uint32_t key, int remote)
{
	int at = (int)(key >> 8);
	if (at < 1 || at >= f->nmrs || !f->mrs[at])
		return NULL;
	struct mr *m = f->mrs[at];
	return (remote ? m->m.rkey : m->m.lkey) == key ? m : NULL;
}

/* Every page must be there, as when they are pinned. */
static int mapped(uintptr_t addr, size_t length)
{
	uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
	uintptr_t from = addr & ~(page - 1), to = (addr + length + page - 1) & ~(page - 1);
	unsigned char seen[4096];
	for (; from < to; from += sizeof seen * page) {
		size_t n = to - from < sizeof seen * page ? to - from : sizeof seen * page;
		if (mincore((void *)from, n, seen))
			return 0;
	}
	return 1;
}

/* What a kernel and a device check; with the lock held. */
static int check(struct tv_device *d, uint64_t start, size_t length, uint64_t iova, unsigned access)
{
	unsigned known = TV_ACCESS_LOCAL_WRITE | TV_ACCESS_REMOTE_WRITE | TV_ACCESS_REMOTE_READ;
	if (length == 0 || length > d->attr.max_mr_size || access & ~known)
		return EINVAL;
	if ((access & TV_ACCESS_REMOTE_WRITE) && !(access & TV_ACCESS_LOCAL_WRITE))
		return EINVAL;
	if ((iova ^ start) & 4095 || iova + length < iova)
		return EINVAL;
	if (d->live.mrs >= d->attr.max_mr)
		return ENOMEM;
	if (d->memlock && d->locked + length > d->memlock)
		return ENOMEM;
	return 0;
}

static struct mr *make(struct pd *p, void *addr, size_t length, uint64_t iova, unsigned access)
{
	struct tv_device *d = p->dev;
	struct fabric *f = d->f;
	struct mr *m = calloc(1, sizeof *m);
	int at = place(f);
	uint8_t gen = f->gens[at] += 2;
	m->m.context = d->lie == LIE_MR ? NULL : p->p.context;
	m->m.pd = &p->p;
	m->m.addr = addr;
	m->m.length = length;
	m->m.lkey = (uint32_t)at << 8 | gen;
	m->m.rkey = (uint32_t)at << 8 | (gen ^ 1u);
	m->dev = d;
	m->pd = p;
	m->mem = addr;
	m->iova = iova;
	m->length = length;
	m->access = access;
	f->mrs[at] = m;
	p->users++;
	d->live.mrs++;
	d->locked += length;
	return m;
}

static struct tv_mr *reg_mr_iova(struct tv_pd *tp, void *addr, size_t length, uint64_t iova, int access)
{
	struct pd *p = (struct pd *)tp;
	struct mr *m = NULL;
	int err = enter(p->dev, V_REG_MR);
	if (!err)
		err = check(p->dev, (uintptr_t)addr, length, iova, (unsigned)access);
	if (!err && !mapped((uintptr_t)addr, length))
		err = EFAULT;
	if (!err)
		m = make(p, addr, length, iova, (unsigned)access);
	leave(p->dev, err);
	return m ? &m->m : NULL;
}

static struct tv_mr *reg_mr(struct tv_pd *p, void *addr, size_t length, int access)
{
	return reg_mr_iova(p, addr, length, (uintptr_t)addr, access);
}

/* Any memory file stands for a dma-buf. */
static struct tv_mr *reg_dmabuf_mr(struct tv_pd *tp, uint64_t offset, size_t length, uint64_t iova,
				   int fd, int access)
{
	struct pd *p = (struct pd *)tp;
	struct tv_device *d = p->dev;
	struct mr *m = NULL;
	uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE), from = offset & ~(page - 1);
	int err = enter(d, V_REG_DMABUF);
	if (!err && !d->dmabuf)
		err = EOPNOTSUPP;
	if (!err)
		err = check(d, offset, length, iova, (unsigned)access);
	struct stat st;
	if (!err && fstat(fd, &st))
		err = EBADF;
	if (!err && (offset > (uint64_t)st.st_size || length > (uint64_t)st.st_size - offset))
		err = EINVAL;
	if (!err) {
		size_t n = length + (offset - from);
		void *map = mmap(NULL, n, PROT_READ | PROT_WRITE, MAP_SHARED, fd, (off_t)from);
		if (map == MAP_FAILED) {
			err = errno;
		} else {
			m = make(p, (char *)map + (offset - from), length, iova, (unsigned)access);
			m->map = map;
			m->map_len = n;
		}
	}
	leave(d, err);
	return m ? &m->m : NULL;
}

static int dereg_mr(struct tv_mr *tm)
{
	struct mr *m = (struct mr *)tm;
	struct tv_device *d = m->dev;
	int err = enter(d, V_DEREG_MR);
	if (!err) {
		d->f->mrs[m->m.lkey >> 8] = NULL;
		m->pd->users--;
		d->live.mrs--;
		d->locked -= m->length;
		if (m->map)
			munmap(m->map, m->map_len);
		free(m);
	}
	return leave(d, err);
}

void fill_memory(struct tv_lib *l)
{
	l->alloc_pd = alloc_pd;
	l->dealloc_pd = dealloc_pd;
	l->reg_mr = reg_mr;
	l->reg_mr_iova = reg_mr_iova;
	l->reg_dmabuf_mr = reg_dmabuf_mr;
	l->dereg_mr = dereg_mr;
}
