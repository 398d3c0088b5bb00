package attribution

// stepGroup is executions of one step.
type stepGroup struct {
	name       string
	executions []*execution
}

// numberSteps numbers the steps of the run, so that no later stage looks their names up.
func (a *account) numberSteps() {
	numbers := make(map[string]int32)
	for i, e := range a.executions {
		if i > 0 && e.step == a.executions[i-1].step {
			e.number = a.executions[i-1].number
			continue
		}
		n, ok := numbers[e.step]
		if !ok {
			n = int32(len(numbers))
			numbers[e.step] = n
		}
		e.number = n
	}
	a.steps = len(numbers)
}

// bySteps groups the run's executions by step, in their order, the steps by their
// first execution; those that leave tells are left out.
func (a *account) bySteps(leave func(*execution) bool) []stepGroup {
	counts := make([]int32, a.steps)
	kept, distinct := 0, 0
	for _, e := range a.executions {
		if !leave(e) {
			if counts[e.number] == 0 {
				distinct++
			}
			counts[e.number]++
			kept++
		}
	}
	places := make([]*execution, kept) // one allocation for all groups
	groups := make([]stepGroup, 0, distinct)
	at := make([]int32, a.steps) // its group, from 1
	for _, e := range a.executions {
		if leave(e) {
			continue
		}
		if at[e.number] == 0 {
			count := counts[e.number]
			groups = append(groups, stepGroup{e.step, places[:0:count]})
			places = places[count:]
			at[e.number] = int32(len(groups))
		}
		g := &groups[at[e.number]-1]
		g.executions = append(g.executions, e)
	}
	return groups
}

// none leaves no execution out of bySteps.
func none(*execution) bool { return false }

// isView leaves the containers of a step's executions out of bySteps.
func isView(e *execution) bool { return e.view }
