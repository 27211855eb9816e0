"""Tests the table "After attach or wrap" of client/python/BEHAVIOUR.md, column attach(). Each row
is a call of a script on a model or an optimizer. The call must work, or be refused with the right
words."""
import copy
import io
import warnings

import ranks
import test_ddp
import test_kept
from test_ddp import attach, setUpModule, tearDownModule     # noqa: found by name

BEGIN = 8.0
# parameters after one and two steps with momentum 0.5 and rate 0.5
ONCE, TWICE = BEGIN - 0.5, BEGIN - 0.5 - 0.75


class Eights(test_kept.Ones):
    def make_net(self):
        net = super().make_net()
        for one in net.parameters():
            self.torch.nn.init.constant_(one, BEGIN)
        return net

    def are(self, value, net=None):
        return all((one == value).all().item() for one in (net or self.net).parameters())


def again(of):
    """Checks that a second step has its normal size."""
    of.train()
    return of.are(TWICE)


# ---- supported calls ----

def copy_of_the_module(of):
    copied = copy.deepcopy(of.model.module)
    return again(of) and of.are(ONCE, copied)


def copy_of_the_model(of):
    copied = copy.deepcopy(of.model)
    return again(of) and of.are(ONCE, copied.module)


def module_pickled(of):
    memory = io.BytesIO()
    of.torch.save(of.model.module, memory)
    memory.seek(0)
    return again(of) and of.are(ONCE, of.torch.load(memory, weights_only=False))


def optimizer_pickled_or_copied(of):
    memory = io.BytesIO()
    of.torch.save(of.optimizer, memory)
    memory.seek(0)
    for one in of.torch.load(memory, weights_only=False), copy.deepcopy(of.optimizer):
        moments = [state['momentum_buffer'] for state in one.state.values()]
        assert len(moments) == 2 and all((moment == 1).all() for moment in moments)
    return again(of)


def checkpoint_of_rank_0_alone(of):
    if of.rank == 0:
        state = of.optimizer.state_dict()['state']
        assert (state[0]['momentum_buffer'] == 1).all()
        of.torch.save({'model': of.net.state_dict(), 'state': state}, io.BytesIO())
    return again(of)


def checkpoint_loaded(of):
    """Makes two steps. Then loads the state of the first one."""
    model, optimizer = copy.deepcopy(of.net.state_dict()), of.optimizer.state_dict()
    of.train()
    of.net.load_state_dict(model)
    of.optimizer.load_state_dict(optimizer)
    return again(of)


def average_of_weights(of):
    swa = of.torch.optim.swa_utils.AveragedModel(of.model.module)
    swa.update_parameters(of.model.module)
    is_right = again(of)
    swa.update_parameters(of.model.module)
    return is_right and of.are((ONCE + TWICE) / 2, swa.module)


def average_swapped_in_and_out(of):
    kept = [one.data for one in of.net.parameters()]
    for one in of.net.parameters():
        one.data = of.torch.zeros_like(one)
    of.model.module(of.ones())
    for one, value in zip(of.net.parameters(), kept):
        one.data = value
    return again(of)


def scheduler_made_after(of):
    schedule = of.torch.optim.lr_scheduler.StepLR(of.optimizer, 1, 0.5)
    of.train()
    schedule.step()
    is_right = of.are(TWICE)
    of.train()
    return is_right and of.are(TWICE - 0.875 * 0.5)


def settings_of_a_group(of):
    of.optimizer.param_groups[0]['lr'] = 1.0
    of.train()
    return of.are(ONCE - 1.5)


def gradients_zeroed_in_both_ways(of):
    of.optimizer.zero_grad(set_to_none=False)
    of.model.zero_grad(set_to_none=True)
    return again(of)


def two_backward_passes(of):
    with of.model.no_sync():
        sum(one.sum() for one in of.net.parameters()).backward()
    of.optimizer.zero_grad = lambda: None
    of.train()      # makes two more steps
    return of.are(ONCE - 0.5 * (0.5 + 3))


def closure(of):
    def of_step():
        of.optimizer.zero_grad()
        of.model(of.ones())
        loss = sum(one.sum() for one in of.net.parameters())
        loss.backward()
        return loss
    of.optimizer.step(of_step)
    return of.are(TWICE)


def scaler_that_is_disabled(of):
    scaler = of.torch.cuda.amp.GradScaler(enabled=False)
    of.optimizer.zero_grad()
    of.model(of.ones())
    scaler.scale(sum(one.sum() for one in of.net.parameters())).backward()
    scaler.step(of.optimizer)
    scaler.update()
    return of.are(TWICE)


def norm_of_gradients(of):
    between(of, lambda: of.torch.nn.utils.clip_grad_norm_(of.net.parameters(), float('inf')))
    return of.are(TWICE)


def evaluation_by_rank_0_alone(of):
    if of.rank == 0:
        of.model.eval()
        with of.torch.no_grad():
            of.model(of.ones())
        of.model.train()
    return again(of)


def gradients_as_views(of):
    other = Eights.beside(of.rank, of.workers, gradient_as_bucket_view=True)
    begin(other, 'views/')
    return norm_of_gradients(other)


WORKS = (copy_of_the_module, copy_of_the_model, module_pickled, optimizer_pickled_or_copied,
         checkpoint_of_rank_0_alone, checkpoint_loaded, average_of_weights,
         average_swapped_in_and_out, scheduler_made_after, settings_of_a_group,
         gradients_zeroed_in_both_ways, two_backward_passes, closure, scaler_that_is_disabled,
         norm_of_gradients, evaluation_by_rank_0_alone, gradients_as_views)


# ---- refused calls ----

def between(of, act):
    """Makes a step, and calls `act` between backward() and step()."""
    of.optimizer.zero_grad()
    of.model(of.ones())
    sum(one.sum() for one in of.net.parameters()).backward()
    act()
    of.optimizer.step()


def norm_clipped(of):
    between(of, lambda: of.torch.nn.utils.clip_grad_norm_(of.net.parameters(), 0.1))


def values_clipped(of):
    between(of, lambda: of.torch.nn.utils.clip_grad_value_(of.net.parameters(), 0.1))


def values_clipped_in_a_later_step(of):
    of.train()
    values_clipped(of)      # the third step


def gradients_unscaled(of):
    """Scales gradients by hand, because GradScaler.step() works only on GPUs."""
    between(of, lambda: [one.grad.mul_(0.5) for one in of.net.parameters()])


def group_added(of):
    of.optimizer.add_param_group({'params': [of.torch.nn.Parameter(of.torch.ones(2))]})


def parameter_put_into_a_group(of):
    of.optimizer.param_groups[0]['params'].append(of.torch.nn.Parameter(of.torch.ones(2)))
    of.train()


def parameter_frozen(of):
    of.net[0].requires_grad_(False)
    of.train()


def parameters_of_another_dtype(of):
    of.net.double()
    of.model(of.ones().double()).sum().backward()     # DDP no longer finds the parameters
    of.optimizer.step()


def rule_changed(of):
    of.optimizer.param_groups[0]['momentum'] = 0
    of.train()


def optimizer_for_a_part(of):
    other = Eights.beside(of.rank, of.workers)
    attach(other, optimizer=of.torch.optim.SGD(other.net[0].parameters(), 0.1), prefix='part/')


def rows_scaled_in_forward(of):
    class Rows(Eights):
        def make_net(self):
            return self.torch.nn.Embedding(8, 2, max_norm=1.0)
    other = Rows.beside(of.rank, of.workers)
    attach(other, optimizer=of.torch.optim.SGD(other.net.parameters(), 0.1), prefix='rows/')


REFUSED = {norm_clipped: 'clip_grad_norm_()', values_clipped: 'clip_grad_norm_()',
           values_clipped_in_a_later_step: 'clip_grad_norm_()',
           gradients_unscaled: 'GradScaler',
           group_added: 'add_param_group() of an optimizer whose steps the service does',
           parameter_put_into_a_group: 'other parameters', parameter_frozen: 'was frozen',
           parameters_of_another_dtype: 'of torch.float32: change a model before attach()',
           rule_changed: 'group 0 of the optimizer was attached with the rule ',
           optimizer_for_a_part: "lacks the model's 1.weight", rows_scaled_in_forward: 'max_norm'}


def fresh(rank, workers, number):
    """Returns an attached model after one step."""
    of = (Eights.beside if number else Eights)(rank, workers)
    begin(of, f'{number}/')
    return of


def begin(of, prefix):
    of.optimizer = of.torch.optim.SGD(of.net.parameters(), 0.5, momentum=0.5)
    attach(of, optimizer=of.optimizer, prefix=prefix)
    of.train()


def rank_works(rank, workers):
    warnings.simplefilter('ignore')     # torch warns about a scaler without a GPU
    return {one.__name__: one(fresh(rank, workers, number)) for number, one in enumerate(WORKS)}


def rank_is_refused(rank, workers):
    found = {}
    for number, one in enumerate(REFUSED):
        of = fresh(rank, workers, number)
        try:
            one(of)
        except Exception as error:
            found[one.__name__] = str(error)
    return found


class Objects(test_ddp.Case):
    def test_calls_that_work_after_attach_with_an_optimizer(self):
        for found in self.run_ranks('rank_works'):
            self.assertEqual([name for name, is_right in found.items() if not is_right], [])

    def test_refused_calls_after_attach_with_an_optimizer_give_the_reason(self):
        for found in self.run_ranks('rank_is_refused'):
            for one, words in REFUSED.items():
                self.assertIn(words, found.get(one.__name__, 'no error'), one.__name__)


if __name__ == '__main__':
    ranks.main(globals(), forks=True)
